# docker build -f packaging/docker/cpu.Dockerfile -t elastichost .
# docker run --rm --shm-size=8g -v "$PWD:/work" elastichost run job.toml
#
# Rows are in shared memory, and Docker's default of 64 MiB is too little for most jobs: give --shm-size, or set
# ELASTICHOST_ARENA_DIR to a directory on a disk. `elastichost doctor` says how much there is.
FROM python:3.12-slim AS build
RUN pip install --no-cache-dir build
COPY . /source
RUN python -m build --wheel --outdir /dist /source

FROM python:3.12-slim
ARG TORCH_INDEX=""
COPY --from=build /dist /dist
COPY packaging/fbgemm-gpu-shim /dist/fbgemm-gpu-shim
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} /dist/fbgemm-gpu-shim /dist/*.whl \
    && useradd --create-home trainer
USER trainer
WORKDIR /work
ENTRYPOINT ["elastichost"]

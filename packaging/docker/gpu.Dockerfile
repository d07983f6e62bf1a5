# docker build -f packaging/docker/gpu.Dockerfile -t elastichost:gpu .
# docker run --rm --gpus all --shm-size=8g -v "$PWD:/work" elastichost:gpu run job.toml --set resources.gpus=1
#
# The CUDA libraries come with torch; the host needs only a driver. For --shm-size see cpu.Dockerfile.
FROM python:3.12-slim AS build
RUN pip install --no-cache-dir build
COPY . /source
RUN python -m build --wheel --outdir /dist /source

FROM python:3.12-slim
COPY --from=build /dist /dist
RUN pip install --no-cache-dir /dist/*.whl && useradd --create-home trainer
USER trainer
WORKDIR /work
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["elastichost"]

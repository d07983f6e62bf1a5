"""`elastichost serve`: scores of an export over HTTP.

Modules:
    settings        what can be chosen, with limits
    server          the process: binds the port, starts uvicorn
    http_protocol   timeouts of connections
    app             the routes
    request_body    reads the body of a request, within limits
    request_error   the refusal of a request
    json_rows       rows of JSON to columns
    arrow_rows      Arrow IPC streams to columns, and scores to Arrow
    batcher         scores requests that wait at the same time together
    loaded_export   loads an export and tries it
    follower        follows the directory, and loads newer exports
    telemetry       counts, in the text format of Prometheus

A request goes through `request_body`, then in a thread through `json_rows` or `arrow_rows` and the preprocessing of
`results`, then through `batcher`. It keeps the export with which it was prepared, so that a newer one cannot mix with
it. It needs the extra `serve`.
"""

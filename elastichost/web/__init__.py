"""A run in the browser: the page of `elastichost top --web`, which changes while the run trains.

Modules:
    access       which requests are answered
    live_page    the report of a run that trains, in parts that are replaced one by one
    prometheus   the status of a run in the text format of Prometheus
    server       the HTTP server on this machine

The page is the report of `reporting`, made again every few seconds from the files of the run while somebody looks at
it. The run knows nothing of it. `reporting/static/live.js` replaces the parts in the browser.
"""

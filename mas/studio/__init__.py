"""`mas studio`: a local page over run directories, written by this process and read by one browser.

`app` puts the route modules together, `site` is what each of them gets, `runs` reads run directories. A route module
offers `routes(studio)`, which adds its links to `studio.links` or `studio.run_links`.
"""

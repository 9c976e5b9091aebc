"""An adapting classifier over HTTP: images in, classes and the guard's mode out, one adapter per named stream.

It needs the extra ``serve``: :func:`ttc.serve.application.create_app` builds the application for any ASGI server,
:mod:`ttc.serve.local_server` runs it under uvicorn and :mod:`ttc.serve.ray_server` on Ray Serve.
"""

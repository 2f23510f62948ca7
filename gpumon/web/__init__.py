"""``gpumon serve``: the dashboard in a browser, for looking only.

Each visitor has a process of its own, in a terminal of its own (``web/visitor.py``); the page in
the browser is a terminal too: xterm.js with the front end of textual-serve. ``web/server.py`` is
between them, and ``web/access.py`` decides who is let in.

The server of textual-serve itself is not used: it has no token and no limit, accepts every Origin,
its page loads a font from another host, and it starts programs by a shell and waits for their end
without a bound.
"""

"""How far it is, on stderr."""

import sys
import time


class Progress:
    """On a terminal one line, written over and over; else a line now and then, and never more than one in `pause`."""

    pause = 10.0

    def __init__(self, tokens, stream=None):
        self._tokens, self._stream = tokens, stream or sys.stderr
        self._in_place = self._stream.isatty()
        self._start = self._last = time.monotonic()

    def say(self, text):
        self._write(text, done=True)

    def __call__(self, name, tokens):
        """`name` is about to be measured, after so many tokens; None: all is done."""
        now = time.monotonic()
        if name is not None and not self._in_place and now - self._last < self.pause:
            return
        self._last = now
        what = "done" if name is None else name
        self._write(f"{tokens} of {self._tokens} tokens, {what}, {now - self._start:.0f} s", done=name is None)

    def _write(self, text, *, done):
        if self._in_place:
            self._stream.write("\r\033[K" + text + ("\n" if done else ""))
        else:
            self._stream.write("rota eval: " + text + "\n")
        self._stream.flush()

"""The one error that commands say instead of showing a traceback. Imports nothing, so that --help is quick."""


class Refused(Exception):
    """What cannot be measured, in a sentence. `code` is the exit code: 2 wrong usage, 4 cannot be served."""

    def __init__(self, sentence, code=2):
        super().__init__(sentence)
        self.code = code

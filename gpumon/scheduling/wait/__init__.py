"""Waits for cards or processes, at a pace that costs next to nothing, and tells when they came.

``goals`` says whether what is waited for has come, and who stands in the way; ``lives`` holds
processes until they end; ``pace`` and ``rates`` say how often to look and how long it may still
take; ``notice`` tells somebody who does not look.
"""

"""Reports over logs: totals for each GPU, user, process or job, and charts.

``reading`` merges the files into one sequence of samples, ``tally`` adds them up, ``figures``
computes and names the results; ``table``, ``notes`` and ``plot`` show them to a user, ``output``
to a program, too. A sample is dropped once the next one has been read, so a long log needs no more
memory than a short one.
"""

"""What a server does per second follows from counters, and nothing is made up."""

from __future__ import annotations

from gpumon.model.serving import ServerLoad
from gpumon.serving.metrics_text import ServerReadings
from gpumon.serving.rates import Rates


def test_a_rate_needs_two_answers() -> None:
    rates = Rates()
    assert rates.load(ServerReadings(2, 1, tokens=100), 10.0) == ServerLoad(2, 1)
    assert rates.load(ServerReadings(2, 1, tokens=600), 15.0) == ServerLoad(2, 1, tokens=100)


def test_rates_are_over_half_a_minute() -> None:
    rates = Rates()
    for second in range(0, 100, 5):
        # Ten tokens per second in the first minute, then none.
        load = rates.load(ServerReadings(0, 0, tokens=10 * min(second, 60)), float(second))
        if second == 60:
            assert load.tokens == 10
        if second == 75:
            assert load.tokens == 5
    assert load.tokens == 0
    assert load.is_idle


def test_a_server_that_began_again_has_no_rate() -> None:
    rates = Rates()
    rates.load(ServerReadings(tokens=1000, requests=5), 0.0)
    assert rates.load(ServerReadings(tokens=10, requests=6), 5.0) == ServerLoad(requests=0.2)


def test_a_counter_that_appears_has_no_rate() -> None:
    rates = Rates()
    rates.load(ServerReadings(), 0.0)
    assert rates.load(ServerReadings(tokens=10), 5.0) == ServerLoad()


def test_after_silence_rates_begin_anew() -> None:
    rates = Rates()
    rates.load(ServerReadings(tokens=0), 0.0)
    rates.forget()
    assert rates.load(ServerReadings(tokens=1000), 60.0).tokens is None


def test_half_a_request_is_not_none() -> None:
    """No server should report one, but it is not 0."""
    load = Rates().load(ServerReadings(running=0.5, waiting=0), 0.0)
    assert (load.running, load.waiting, load.is_idle) == (1, 0, False)


def test_tokens_of_a_request_that_runs_may_be_counted_at_its_end() -> None:
    rates = Rates()
    for now, live, tokens in ((0.0, False, None), (5.0, False, None), (10.0, True, 0)):
        load = rates.load(ServerReadings(1, tokens=7), now, tokens_while_generating=live)
        assert load.tokens == tokens

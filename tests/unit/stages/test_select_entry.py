"""Which entry of the trail is taken."""

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.stages.select_entry import pareto_entries


def test_pareto_entries_equal_ones_are_both_optimal():
    entries = [
        LearnedEntry(entry=i, epoch=i, compression=c, accuracy=a, thresholds={}, temperatures={})
        for i, (c, a) in enumerate([(2, 0.9), (5, 0.8), (5, 0.8), (4, 0.7)])
    ]
    assert pareto_entries(tuple(entries), Metric()) == {0, 1, 2}

//! Networks of Shadow experiments and what was measured in them.

//! How long a team needs for a network (paper §4.3, §7), by the coordinator's own schedule.

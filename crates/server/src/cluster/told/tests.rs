//! Roles, ranges and ids, by a configuration written by hand.

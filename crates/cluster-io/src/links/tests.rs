//! Links between two in one process.

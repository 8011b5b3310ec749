//! The reference model: a ledger in memory, for fast tests.

//! File, environment and flags become one validated configuration.

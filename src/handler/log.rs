//! Prints each message as one line.

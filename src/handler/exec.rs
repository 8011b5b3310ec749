//! A command for each message.

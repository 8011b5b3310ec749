//! The commands, one file each.

pub mod broker;
pub mod failure;
pub mod publish;

pub use failure::Failure;

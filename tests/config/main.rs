//! Goal: a configuration is read as it was meant, every mistake is reported at once and in words that
//! help, and a password is never printed. What is wrong goes through the real binary.

mod fuzz;
mod layers;
mod secrets;
mod setup;
mod wrong;

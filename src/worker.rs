//! The heart: intake → claim → handler → finish → settle. Decides; names no driver.

mod build;
pub mod core;
pub mod decide;
pub mod desk;
mod driver;
mod handling;
pub mod letter;
pub mod outage;
pub mod outcome;
pub mod policy;
pub mod run;
pub mod signs;

pub use handling::Handling;
pub use policy::Policy;
pub use run::{Stop, Worker, WorkerError};

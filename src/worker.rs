//! The heart: intake → claim → handler → finish → settle. Decides; names no driver.

pub mod core;
pub mod decide;
pub mod outage;
pub mod outcome;
pub mod policy;

pub use policy::Policy;

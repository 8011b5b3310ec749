//! The heart: intake → claim → handler → finish → settle. Decides; names no driver.

pub mod policy;

pub use policy::Policy;

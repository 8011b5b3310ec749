//! Publishing a copy of a message, as whole as it can be sent.

use std::time::Duration;

use crate::{
    broker::{Outlet, PublishError},
    crash_point::{CrashPoint, reach},
};

use super::super::{core::Letter, letter};

/// For one confirmed copy, a new connection and the queue's declaration included.
const PUBLISH_LIMIT: Duration = Duration::from_secs(15);

pub(super) async fn publish(outlet: &Outlet, letter: &Letter, queue: &str) -> Result<(), PublishError> {
    reach(CrashPoint::CopySending);
    let (destination, copy) = letter::compose(letter, queue);
    let mut result = outlet.publish(&destination, copy, PUBLISH_LIMIT).await;
    if matches!(result, Err(PublishError::TooLarge(_))) {
        for (destination, smaller) in letter::compose_smaller(letter, queue) {
            result = outlet.publish(&destination, smaller, PUBLISH_LIMIT).await;
            if !matches!(result, Err(PublishError::TooLarge(_))) {
                break;
            }
        }
    }
    if result.is_ok() {
        reach(CrashPoint::CopyConfirmed);
    }
    result
}

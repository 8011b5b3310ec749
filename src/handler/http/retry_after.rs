//! `Retry-After`: how long an endpoint asks to be left alone (RFC 9110, section 10.2.3).

use std::time::{Duration, SystemTime};

/// Seconds, or the time until an HTTP date. What is neither, or is not after `now`, is no wish. The
/// worker bounds what is: this is another host's number.
pub(super) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        Duration::from_secs(value.parse().ok()?)
    } else {
        httpdate::parse_http_date(value).ok()?.duration_since(now).ok()?
    };
    (!wait.is_zero()).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_to_come_are_wishes_and_nothing_else_is() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, seconds) in [
            ("2", Some(2)),
            (" 120 ", Some(120)),
            ("9999999999", Some(9_999_999_999)),
            ("0", None),
            ("00", None),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("1e3", None),
            ("99999999999999999999999", None),
            ("", None),
            (" ", None),
            ("abc", None),
            ("٣", None),
            ("Sun, 06 Nov 1994 08:49:40 GMT", Some(3)),
            ("Sunday, 06-Nov-94 08:49:40 GMT", Some(3)),
            ("Sun Nov  6 08:49:40 1994", Some(3)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:36 GMT", None),
            ("Thu, 01 Jan 1970 00:00:00 GMT", None),
            ("Sun, 06 Nov 99999 08:49:40 GMT", None),
            ("Sun, 36 Nov 1994 08:49:40 GMT", None),
        ] {
            assert_eq!(retry_after(value, now), seconds.map(Duration::from_secs), "{value:?}");
        }
    }
}

//! The trace that a message belongs to: W3C Trace Context (<https://www.w3.org/TR/trace-context/>), which senders
//! put into the headers `traceparent` and `tracestate`.

use super::{Properties, Value};

/// Version, trace, parent and flags, with their dashes.
const PARENT_BYTES: usize = 55;
/// A later version may append to it.
const PARENT_BYTES_MAX: usize = 512;
/// What everybody is to pass on (section 3.3.1.5); longer ones are cut between members.
const STATE_BYTES: usize = 512;
/// The first to go then.
const LONG_MEMBER_BYTES: usize = 128;
const MEMBERS_MAX: usize = 32;
const MEMBER_PART_BYTES_MAX: usize = 256;

/// Who caused this message: valid, and so safe in a header or a variable (visible ASCII and blanks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    parent: String,
    state: Option<String>,
}

impl TraceContext {
    /// `None` if there is no `traceparent`, or one that is invalid. Then its `tracestate` counts as little; an
    /// invalid one of these is left out by itself.
    pub fn of(properties: &Properties) -> Option<Self> {
        Self::parse(text(properties.header("traceparent")?)?, properties.header("tracestate").and_then(text))
    }

    /// The same from texts.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let parent = parent.trim_matches([' ', '\t']);
        is_parent(parent).then(|| Self { parent: parent.to_owned(), state: state.and_then(valid_state) })
    }

    pub fn traceparent(&self) -> &str {
        &self.parent
    }

    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(bytes) | Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Section 3.2; section 4 for versions to come.
fn is_parent(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some((known, appended)) = bytes.split_at_checked(PARENT_BYTES) else { return false };
    let fields = [&known[..2], &known[3..35], &known[36..52], &known[53..]];
    let [version, trace, parent, _] = fields;
    let is_hex = |field: &[u8]| field.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_zero = |field: &[u8]| field.iter().all(|byte| *byte == b'0');
    let may_append = version != b"00"
        && bytes.len() <= PARENT_BYTES_MAX
        && appended.starts_with(b"-")
        && appended.iter().all(u8::is_ascii_graphic);
    [2, 35, 52].iter().all(|at| known[*at] == b'-')
        && fields.into_iter().all(is_hex)
        && version != b"ff"
        && !is_zero(trace)
        && !is_zero(parent)
        && (appended.is_empty() || may_append)
}

/// Section 3.3: the list as it is passed on.
fn valid_state(text: &str) -> Option<String> {
    let members = text.split(',').map(|member| member.trim_matches([' ', '\t']));
    let mut members: Vec<&str> = members.filter(|member| !member.is_empty()).collect();
    let mut keys = Vec::new();
    for member in &members {
        let (key, value) = member.split_once('=')?;
        if !is_state_key(key) || !is_state_value(value) || keys.contains(&key) {
            return None;
        }
        keys.push(key);
    }
    if members.is_empty() || members.len() > MEMBERS_MAX {
        return None;
    }
    if length(&members) > STATE_BYTES {
        members.retain(|member| member.len() <= LONG_MEMBER_BYTES);
    }
    while length(&members) > STATE_BYTES {
        members.pop();
    }
    (!members.is_empty()).then(|| members.join(","))
}

fn length(members: &[&str]) -> usize {
    members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1)
}

fn is_state_key(key: &str) -> bool {
    let is_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    key.len() <= MEMBER_PART_BYTES_MAX
        && key.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && key.bytes().all(is_part)
}

fn is_state_value(value: &str) -> bool {
    (1..=MEMBER_PART_BYTES_MAX).contains(&value.len())
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn parent(text: &str) -> bool {
        TraceContext::parse(text, None).is_some()
    }

    #[test]
    fn a_parent_is_valid_or_is_none() {
        let good = format!("00-{TRACE}-00f067aa0ba902b7-01");
        for valid in [
            good.clone(),
            good.replace("-01", "-00"),
            good.replace("-01", "-ff"),
            format!(" {good}\t"),
            good.replace("00-", "01-"),
            format!("{}-what-comes.later", good.replace("00-", "cc-")),
        ] {
            assert!(parent(&valid), "{valid}");
        }
        for invalid in [
            String::new(),
            good[..54].to_owned(),
            format!("{good}-"),
            format!("{good}-00"),
            good.replace("00-", "ff-"),
            format!("{}x", good.replace("00-", "01-")),
            format!("{}-a b", good.replace("00-", "01-")),
            format!("{}-{}", good.replace("00-", "01-"), "x".repeat(600)),
            good.to_uppercase(),
            good.replace('-', "_"),
            good.replace(TRACE, &"0".repeat(32)),
            good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            good.replace("4b", "gb"),
            good.replace("4b", "é"),
        ] {
            assert!(!parent(&invalid), "{invalid}");
        }
    }

    #[test]
    fn a_state_is_passed_on_as_far_as_it_is_valid_and_short() {
        let state = |text: &str| valid_state(text);
        assert_eq!(state("a=1, ,b@c=x y%\t,").unwrap(), "a=1,b@c=x y%");
        assert_eq!(state("1-_*/=~").unwrap(), "1-_*/=~");
        for invalid in ["", " , ", "a", "=1", "a=", "A=1", "a=1=2", "a=1,a=2", "a=é", "a b=1", "a=1\n"] {
            assert_eq!(state(invalid), None, "{invalid:?}");
        }
        let many = |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        assert!(state(&many(32)).is_some() && state(&many(33)).is_none());
        assert!(state(&format!("a={}", "x".repeat(257))).is_none());
        let long = format!("a={},b=1,c={}", "x".repeat(200), "y".repeat(256));
        assert_eq!(
            state(&format!("{long},d={}", "z".repeat(100))).unwrap(),
            format!("b=1,d={}", "z".repeat(100))
        );
        assert_eq!(state(&long).unwrap(), long, "short enough as a whole");
        let row = (0..6).map(|n| format!("k{n}={}", "x".repeat(98))).collect::<Vec<_>>();
        assert_eq!(state(&row.join(",")).unwrap(), row[..5].join(","), "the last ones go");
    }

    #[test]
    fn it_is_taken_from_headers_of_that_name() {
        let good = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let of = |entries: Vec<(&str, Value)>| {
            let headers = entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            TraceContext::of(&Properties { headers: Some(headers), ..Properties::default() })
        };
        let both =
            of(vec![("traceparent", Value::text(&good)), ("tracestate", Value::Bytes(b"a=1".to_vec()))]);
        let both = both.unwrap();
        assert_eq!((both.traceparent(), both.tracestate()), (good.as_str(), Some("a=1")));
        let alone = of(vec![("traceparent", Value::text(&good)), ("tracestate", Value::text("?"))]).unwrap();
        assert_eq!(alone.tracestate(), None);
        assert_eq!(of(vec![("tracestate", Value::text("a=1"))]), None);
        assert_eq!(of(vec![("traceparent", Value::I64(1)), ("tracestate", Value::text("a=1"))]), None);
        assert_eq!(TraceContext::of(&Properties::default()), None);
    }
}

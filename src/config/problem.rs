//! What is wrong with a configuration: every mistake, each in one sentence.

use std::fmt;

use super::secret::without_credentials;

/// One mistake: what, which value, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem(String);

impl Problem {
    /// Takes the sentence without a full stop; credentials in URLs are taken out of it.
    pub fn new(sentence: impl AsRef<str>) -> Self {
        Self(without_credentials(sentence.as_ref()).into_owned())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Every mistake of one configuration, in the order of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub fn push(&mut self, sentence: impl AsRef<str>) {
        self.0.push(Problem::new(sentence));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    pub(super) fn append(&mut self, mut others: Problems) {
        self.0.append(&mut others.0);
    }

    /// The value if there are no problems.
    pub(super) fn or<T>(self, value: T) -> Result<T, Problems> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

/// One sentence if there is one, else a numbered list.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.0.as_slice() {
            return write!(f, "{problem}");
        }
        write!(f, "{} problems in the configuration:", self.0.len())?;
        for (index, problem) in self.0.iter().enumerate() {
            write!(f, "\n  {}. {problem}", index + 1)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A value's text in a sentence: quoted, its control characters escaped, at most 60 characters.
pub(super) fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let text = without_credentials(text);
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The candidate that a misspelt name was probably meant to be.
pub(super) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let distance = |candidate: &str| strsim::damerau_levenshtein(&name, &candidate.to_ascii_lowercase());
    candidates
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).clamp(1, 3))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_problem_is_a_sentence_and_several_are_a_list() {
        let mut problems = Problems::default();
        problems.push("a: is wrong");
        assert_eq!(problems.to_string(), "a: is wrong");
        problems.push("b: is wrong");
        assert_eq!(
            problems.to_string(),
            "2 problems in the configuration:\n  1. a: is wrong\n  2. b: is wrong"
        );
    }

    #[test]
    fn a_near_name_is_found_and_a_far_one_is_not() {
        let names = ["prefetch", "key", "concurrency", "on_mismatch"];
        assert_eq!(nearest("prefech", names), Some("prefetch"));
        assert_eq!(nearest("on-mismatch", names), Some("on_mismatch"));
        assert_eq!(nearest("kye", names), Some("key"));
        assert_eq!(nearest("colour", names), None);
    }

    #[test]
    fn a_quoted_text_is_short_printable_and_without_credentials() {
        assert_eq!(quoted("a\u{1b}[31m\n"), r#""a\u{1b}[31m\n""#);
        assert_eq!(quoted(&"é".repeat(100)).chars().count(), 63);
        assert!(!quoted("amqp://u:hidden@h").contains("hidden"));
    }
}

//! A strict reader of Prometheus's text format, version 0.0.4: what it does not know is wrong.

use std::collections::{BTreeMap, BTreeSet};

use openmetrics_parser::{PrometheusType, PrometheusValue, prometheus::parse_prometheus};

type Labels = BTreeMap<String, String>;

/// One scrape.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    pub(super) text: String,
    /// Type by name; each described once, before its samples.
    types: BTreeMap<String, String>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Scrape {
    pub(super) fn parse(text: &str) -> Self {
        let mut scrape = Self { text: text.to_owned(), ..Self::default() };
        assert!(text.ends_with('\n'), "the last line has no end");
        let (mut helped, mut current) = (BTreeSet::new(), String::new());
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect("a help text");
                assert!(!help.trim().is_empty() && helped.insert(name.to_owned()), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(helped.contains(name), "a type without a help text: {line}");
                assert!(scrape.types.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
                current = name.to_owned();
            } else {
                let (name, labels, value) = sample(line);
                assert_eq!(scrape.family_of(&name), current, "a sample apart from its family: {line}");
                let old = scrape.samples.insert((name, labels), value);
                assert!(old.is_none(), "twice: {line}");
            }
        }
        scrape.check_histograms();
        scrape
    }

    /// The same text, read by another's parser: the same families, as many samples in each, and the same totals.
    pub(super) fn check_with_another_reader(&self) {
        let theirs =
            parse_prometheus(&self.text).unwrap_or_else(|error| panic!("{error:?} in\n{}", self.text));
        let types: BTreeMap<_, _> = theirs
            .families
            .values()
            .map(|family| (family.family_name.clone(), family.family_type.to_string()))
            .collect();
        assert_eq!(types, self.types, "left: theirs; right: ours");
        for family in theirs.families.values() {
            let values: Vec<f64> = family.iter_samples().map(|sample| total(&sample.value)).collect();
            let name = match family.family_type {
                PrometheusType::Histogram => format!("{}_count", family.family_name),
                _ => family.family_name.clone(),
            };
            let ours = self.samples.keys().filter(|(sample, _)| *sample == name).count();
            assert_eq!((values.len(), values.iter().sum::<f64>()), (ours, self.sum(&name)), "{name}");
        }
    }

    /// The value of a sample that must be there.
    #[track_caller]
    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let key = (name.to_owned(), labels);
        *self.samples.get(&key).unwrap_or_else(|| panic!("no {key:?} in\n{}", self.text))
    }

    /// Over all labels.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.samples.iter().filter(|((sample, _), _)| sample == name).map(|(_, value)| value).sum()
    }

    /// Each metric with its type and its labels, those of a histogram's buckets left out.
    pub(super) fn families(&self) -> BTreeSet<(String, String, String)> {
        let family = |(name, kind): (&String, &String)| {
            let of = self.samples.keys().filter(|(sample, _)| self.family_of(sample) == *name);
            let labels: BTreeSet<&str> =
                of.flat_map(|(_, labels)| labels.keys().map(String::as_str)).filter(|l| *l != "le").collect();
            let labels: Vec<&str> = labels.into_iter().collect();
            (name.clone(), kind.clone(), labels.join(", "))
        };
        self.types.iter().map(family).collect()
    }

    fn family_of(&self, sample: &str) -> String {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            let name = sample.strip_suffix(suffix)?;
            (self.types.get(name)? == "histogram").then(|| name.to_owned())
        });
        let family = of_histogram.unwrap_or_else(|| sample.to_owned());
        let kind = self.types.get(&family).unwrap_or_else(|| panic!("{sample} has no type"));
        assert!(kind != "counter" || family.ends_with("_total"), "a counter's name ends in _total: {family}");
        family
    }

    /// Buckets grow, and the last one holds all.
    fn check_histograms(&self) {
        let mut buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
        for ((name, labels), value) in &self.samples {
            let Some(base) = name.strip_suffix("_bucket") else { continue };
            let mut labels = labels.clone();
            let bound = labels.remove("le").expect("a bound");
            let bound = number(&bound);
            buckets.entry((base.to_owned(), labels)).or_default().push((bound, *value));
        }
        for ((base, labels), mut bounds) in buckets {
            bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(bounds.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{base}: {bounds:?}");
            let (last, all) = *bounds.last().expect("a bucket");
            assert_eq!(
                (last, all),
                (f64::INFINITY, self.samples[&(format!("{base}_count"), labels)]),
                "{base}"
            );
        }
    }
}

/// A histogram's is its count.
fn total(value: &PrometheusValue) -> f64 {
    match value {
        PrometheusValue::Counter(counter) => counter.value.as_f64(),
        PrometheusValue::Gauge(number) | PrometheusValue::Unknown(number) => number.as_f64(),
        PrometheusValue::Histogram(histogram) => histogram.count.map_or(f64::NAN, |count| count as f64),
        PrometheusValue::Summary(_) => f64::NAN,
    }
}

/// `name{label="value",…} number`, without a time.
fn sample(line: &str) -> (String, Labels, f64) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = line.find(|c| !is_name(c)).unwrap_or_else(|| panic!("no sample: {line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            assert!(!label.is_empty() && label.chars().all(is_name), "{line}");
            let (value, after) = quoted(after, line);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no value: {line}"));
    (name.to_owned(), labels, number(value))
}

/// Up to the closing quote, with the escapes undone, and what follows.
fn quoted<'a>(text: &'a str, line: &str) -> (String, &'a str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                _ => panic!("an unknown escape: {line}"),
            },
            other => value.push(other),
        }
    }
    panic!("no closing quote: {line}")
}

fn number(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        _ => text.parse().unwrap_or_else(|_| panic!("no number: {text}")),
    }
}

#[test]
fn the_reader_refuses_what_is_wrong() {
    let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{q=\"x \\\"y\\\\\\n\"} 1\n";
    let value = Scrape::parse(good).value("a_total", &[("q", "x \"y\\\n")]);
    assert_eq!(value, 1.0);
    for bad in [
        "a_total 1\n",
        "# TYPE a_total counter\na_total 1\n",
        "# HELP a A.\n# TYPE a counter\na 1\n",
        "# HELP a_total A.\n# TYPE a_total counter\na_total one\n",
        "# HELP a_total A.\n# TYPE a_total counter\na_total 1\na_total 1\n",
        "# HELP a_total A.\n# TYPE a_total counter\na_total{q=\"x} 1\n",
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
    ] {
        assert!(std::panic::catch_unwind(|| Scrape::parse(bad)).is_err(), "taken: {bad}");
    }
}

//! Header values: every field type that AMQP 0-9-1 as spoken by RabbitMQ knows, kept apart so that
//! a message can be published again exactly as it came, and one JSON view of them for handlers.

use serde_json::{Map, Number, Value as Json, json};

/// A field table. Sorted by name, names unique, as the wire format's reader gives them.
pub type Table = std::collections::BTreeMap<String, Value>;

/// One header value. The letter is the wire's type tag (RabbitMQ's errata to AMQP 0-9-1).
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`
    I64(i64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: `value / 10^scale`
    Decimal { scale: u8, value: u32 },
    /// `S`: called a string, but any bytes
    Text(Vec<u8>),
    /// `A`
    List(Vec<Value>),
    /// `T`: seconds since 1970 by convention, unchecked
    Time(u64),
    /// `F`
    Table(Table),
    /// `x`
    Bytes(Vec<u8>),
    /// `V`
    Null,
}

/// How deep nested lists and tables are shown; what lies deeper is shown as `"..."`.
const DEPTH_MAX: usize = 32;

impl Value {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into().into_bytes())
    }

    /// The value as JSON, for handlers.
    ///
    /// Numbers stay numbers, except that NaN and the infinities, which JSON lacks, become the
    /// strings `"NaN"`, `"Infinity"` and `"-Infinity"`, and a decimal becomes its exact text.
    /// Bytes that are UTF-8 become that text, others `"hex:…"`.
    pub fn to_json(&self) -> Json {
        self.json_at(0)
    }

    /// A single value as text, as a key is taken from it; `None` for lists, tables and null.
    pub fn to_text(&self) -> Option<String> {
        match self {
            Self::List(_) | Self::Table(_) | Self::Null => None,
            Self::Text(bytes) | Self::Bytes(bytes) => Some(bytes_text(bytes)),
            other => match other.to_json() {
                Json::String(text) => Some(text),
                number_or_bool => Some(number_or_bool.to_string()),
            },
        }
    }

    fn json_at(&self, depth: usize) -> Json {
        match self {
            Self::Bool(v) => json!(v),
            Self::I8(v) => json!(v),
            Self::U8(v) => json!(v),
            Self::I16(v) => json!(v),
            Self::U16(v) => json!(v),
            Self::I32(v) => json!(v),
            Self::U32(v) => json!(v),
            Self::I64(v) => json!(v),
            Self::F32(v) => float_json(f64::from(*v)),
            Self::F64(v) => float_json(*v),
            Self::Decimal { scale, value } => Json::String(decimal_text(*scale, *value)),
            Self::Text(bytes) | Self::Bytes(bytes) => Json::String(bytes_text(bytes)),
            Self::Time(v) => json!(v),
            Self::Null => Json::Null,
            Self::List(_) | Self::Table(_) if depth >= DEPTH_MAX => json!("..."),
            Self::List(items) => items.iter().map(|item| item.json_at(depth + 1)).collect(),
            Self::Table(table) => Json::Object(table_json_at(table, depth + 1)),
        }
    }
}

/// A whole table as one JSON object; see [`Value::to_json`].
pub fn table_json(table: &Table) -> Json {
    Json::Object(table_json_at(table, 0))
}

fn table_json_at(table: &Table, depth: usize) -> Map<String, Json> {
    table.iter().map(|(name, value)| (name.clone(), value.json_at(depth))).collect()
}

fn float_json(v: f64) -> Json {
    match Number::from_f64(v) {
        Some(number) => Json::Number(number),
        None if v.is_nan() => json!("NaN"),
        None if v > 0.0 => json!("Infinity"),
        None => json!("-Infinity"),
    }
}

fn decimal_text(scale: u8, value: u32) -> String {
    let scale = usize::from(scale);
    if scale == 0 {
        return value.to_string();
    }
    let digits = format!("{value:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{whole}.{fraction}")
}

/// UTF-8 as it is, anything else as `hex:` and lower-case hexadecimal digits.
fn bytes_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let mut text = String::with_capacity(4 + bytes.len() * 2);
            text.push_str("hex:");
            for byte in bytes {
                text.push_str(&format!("{byte:02x}"));
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_stable_json_form() {
        let table = Table::from([
            ("bool".into(), Value::Bool(true)),
            ("bytes".into(), Value::Bytes(vec![0xff, 0x00])),
            ("decimal".into(), Value::Decimal { scale: 2, value: 5 }),
            ("double".into(), Value::F64(1.5)),
            ("empty".into(), Value::Table(Table::new())),
            ("inf".into(), Value::F32(f32::NEG_INFINITY)),
            ("list".into(), Value::List(vec![Value::I8(-1), Value::U32(7), Value::Null])),
            ("nan".into(), Value::F64(f64::NAN)),
            ("text".into(), Value::text("añb")),
            ("time".into(), Value::Time(u64::MAX)),
        ]);
        assert_eq!(
            table_json(&table).to_string(),
            r#"{"bool":true,"bytes":"hex:ff00","decimal":"0.05","double":1.5,"empty":{},"inf":"-Infinity","list":[-1,7,null],"nan":"NaN","text":"añb","time":18446744073709551615}"#
        );
    }

    #[test]
    fn deep_nesting_is_cut_not_followed() {
        let mut value = Value::I8(1);
        for _ in 0..200 {
            value = Value::List(vec![value]);
        }
        let text = value.to_json().to_string();
        assert!(text.contains("..."), "{text}");
        assert!(text.len() < 100, "{text}");
    }

    #[test]
    fn a_number_and_its_text_are_the_same_key_text() {
        for value in
            [Value::I8(42), Value::U32(42), Value::I64(42), Value::text("42"), Value::Bytes(b"42".to_vec())]
        {
            assert_eq!(value.to_text().as_deref(), Some("42"), "{value:?}");
        }
        assert_eq!(Value::List(vec![]).to_text(), None);
        assert_eq!(Value::Null.to_text(), None);
    }
}

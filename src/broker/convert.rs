//! lapin's messages, properties and tables to ours and back, without loss.
//!
//! One thing is never produced: lapin's `ShortString` as a header value. Its type tag exists on no
//! wire and RabbitMQ closes the connection on it.

use lapin::{
    BasicProperties,
    types::{AMQPValue, DecimalValue, FieldTable, LongString, ShortString},
};

use super::{BrokerError, Kind};
use crate::message::{Message, Properties, Table, Value};

/// AMQP 0-9-1 bounds short strings, and with them names of all kinds, to this many bytes.
pub const SHORT_BYTES_MAX: usize = 255;

/// How deep lists and tables in headers may be nested in what we send. lapin writes them recursively,
/// on a thread with 2 MiB of stack, and overflowing it aborts the process; reading takes more stack
/// still, so that whatever was received can be sent. Unoptimised code takes ten times as much.
pub const HEADER_DEPTH_MAX: usize = if cfg!(debug_assertions) { 100 } else { 1000 };

/// A short string for the wire; `what` names it in the error.
///
/// # Errors
///
/// [`Kind::TooLarge`] above [`SHORT_BYTES_MAX`] bytes.
pub(super) fn short(text: &str, what: &str) -> Result<ShortString, BrokerError> {
    ShortString::try_new(text).map_err(|_| {
        let message = format!("{what} has {} bytes: AMQP allows {SHORT_BYTES_MAX}", text.len());
        BrokerError::new(Kind::TooLarge, message)
    })
}

/// A delivery's message and its delivery tag; the body is moved, not copied.
pub(super) fn message(delivery: lapin::message::Delivery) -> (Message, u64) {
    let message = Message {
        exchange: delivery.exchange.into(),
        routing_key: delivery.routing_key.into(),
        redelivered: delivery.redelivered,
        properties: properties_in(&delivery.properties),
        body: delivery.data,
    };
    (message, delivery.delivery_tag)
}

pub(super) fn properties_in(from: &BasicProperties) -> Properties {
    let text = |value: &Option<ShortString>| value.as_ref().map(|value| value.as_str().to_owned());
    Properties {
        content_type: text(from.content_type()),
        content_encoding: text(from.content_encoding()),
        headers: from.headers().as_ref().map(table_in),
        delivery_mode: *from.delivery_mode(),
        priority: *from.priority(),
        correlation_id: text(from.correlation_id()),
        reply_to: text(from.reply_to()),
        expiration: text(from.expiration()),
        message_id: text(from.message_id()),
        timestamp: *from.timestamp(),
        kind: text(from.kind()),
        user_id: text(from.user_id()),
        app_id: text(from.app_id()),
        cluster_id: text(from.cluster_id()),
    }
}

/// # Errors
///
/// [`Kind::TooLarge`] for a property or a header's name above 255 bytes, named in the error.
pub(super) fn properties_out(from: &Properties) -> Result<BasicProperties, BrokerError> {
    type With<T> = fn(BasicProperties, T) -> BasicProperties;
    let texts: [(&Option<String>, &str, With<ShortString>); 10] = [
        (&from.content_type, "content_type", BasicProperties::with_content_type),
        (&from.content_encoding, "content_encoding", BasicProperties::with_content_encoding),
        (&from.correlation_id, "correlation_id", BasicProperties::with_correlation_id),
        (&from.reply_to, "reply_to", BasicProperties::with_reply_to),
        (&from.expiration, "expiration", BasicProperties::with_expiration),
        (&from.message_id, "message_id", BasicProperties::with_message_id),
        (&from.kind, "type", BasicProperties::with_type),
        (&from.user_id, "user_id", BasicProperties::with_user_id),
        (&from.app_id, "app_id", BasicProperties::with_app_id),
        (&from.cluster_id, "cluster_id", BasicProperties::with_cluster_id),
    ];
    let mut to = BasicProperties::default();
    for (text, name, with) in texts {
        if let Some(text) = text {
            to = with(to, short(text, name)?);
        }
    }
    if let Some(headers) = &from.headers {
        to = to.with_headers(table_out(headers)?);
    }
    if let Some(mode) = from.delivery_mode {
        to = to.with_delivery_mode(mode);
    }
    if let Some(priority) = from.priority {
        to = to.with_priority(priority);
    }
    if let Some(timestamp) = from.timestamp {
        to = to.with_timestamp(timestamp);
    }
    Ok(to)
}

pub(super) fn table_in(from: &FieldTable) -> Table {
    from.into_iter().map(|(name, value)| (name.as_str().to_owned(), value_in(value))).collect()
}

/// # Errors
///
/// [`Kind::TooLarge`] for a name above 255 bytes, at any depth, and for what is nested too deep.
pub(super) fn table_out(from: &Table) -> Result<FieldTable, BrokerError> {
    table_out_at(from, 0)
}

fn table_out_at(from: &Table, depth: usize) -> Result<FieldTable, BrokerError> {
    let mut to = FieldTable::default();
    for (name, value) in from {
        to.insert(short(name, "a header's name")?, value_out(value, depth)?);
    }
    Ok(to)
}

fn value_in(from: &AMQPValue) -> Value {
    match from {
        AMQPValue::Boolean(v) => Value::Bool(*v),
        AMQPValue::ShortShortInt(v) => Value::I8(*v),
        AMQPValue::ShortShortUInt(v) => Value::U8(*v),
        AMQPValue::ShortInt(v) => Value::I16(*v),
        AMQPValue::ShortUInt(v) => Value::U16(*v),
        AMQPValue::LongInt(v) => Value::I32(*v),
        AMQPValue::LongUInt(v) => Value::U32(*v),
        AMQPValue::LongLongInt(v) => Value::I64(*v),
        AMQPValue::Float(v) => Value::F32(*v),
        AMQPValue::Double(v) => Value::F64(*v),
        AMQPValue::DecimalValue(v) => Value::Decimal { scale: v.scale, value: v.value },
        AMQPValue::ShortString(v) => Value::text(v.as_str()),
        AMQPValue::LongString(v) => Value::Text(v.as_bytes().to_vec()),
        AMQPValue::FieldArray(v) => Value::List(v.as_slice().iter().map(value_in).collect()),
        AMQPValue::Timestamp(v) => Value::Time(*v),
        AMQPValue::FieldTable(v) => Value::Table(table_in(v)),
        AMQPValue::ByteArray(v) => Value::Bytes(v.as_slice().to_vec()),
        AMQPValue::Void => Value::Null,
    }
}

fn value_out(from: &Value, depth: usize) -> Result<AMQPValue, BrokerError> {
    if depth > HEADER_DEPTH_MAX {
        let message = format!("a header is nested more than {HEADER_DEPTH_MAX} deep");
        return Err(BrokerError::new(Kind::TooLarge, message));
    }
    Ok(match from {
        Value::Bool(v) => AMQPValue::Boolean(*v),
        Value::I8(v) => AMQPValue::ShortShortInt(*v),
        Value::U8(v) => AMQPValue::ShortShortUInt(*v),
        Value::I16(v) => AMQPValue::ShortInt(*v),
        Value::U16(v) => AMQPValue::ShortUInt(*v),
        Value::I32(v) => AMQPValue::LongInt(*v),
        Value::U32(v) => AMQPValue::LongUInt(*v),
        Value::I64(v) => AMQPValue::LongLongInt(*v),
        Value::F32(v) => AMQPValue::Float(*v),
        Value::F64(v) => AMQPValue::Double(*v),
        Value::Decimal { scale, value } => {
            AMQPValue::DecimalValue(DecimalValue { scale: *scale, value: *value })
        }
        Value::Text(v) => AMQPValue::LongString(LongString::from(v.as_slice())),
        Value::List(v) => AMQPValue::FieldArray(
            v.iter().map(|item| value_out(item, depth + 1)).collect::<Result<Vec<_>, _>>()?.into(),
        ),
        Value::Time(v) => AMQPValue::Timestamp(*v),
        Value::Table(v) => AMQPValue::FieldTable(table_out_at(v, depth + 1)?),
        Value::Bytes(v) => AMQPValue::ByteArray(v.as_slice().into()),
        Value::Null => AMQPValue::Void,
    })
}

/// How many bytes a table takes on the wire, its own length field included.
pub(super) fn table_wire_bytes(table: &Table) -> usize {
    4 + table.iter().map(|(name, value)| 1 + name.len() + 1 + value_wire_bytes(value)).sum::<usize>()
}

fn value_wire_bytes(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Bool(_) | Value::I8(_) | Value::U8(_) => 1,
        Value::I16(_) | Value::U16(_) => 2,
        Value::I32(_) | Value::U32(_) | Value::F32(_) => 4,
        Value::Decimal { .. } => 5,
        Value::I64(_) | Value::F64(_) | Value::Time(_) => 8,
        Value::Text(v) | Value::Bytes(v) => 4 + v.len(),
        Value::List(v) => 4 + v.iter().map(|item| 1 + value_wire_bytes(item)).sum::<usize>(),
        Value::Table(v) => table_wire_bytes(v),
    }
}

/// For `fuzz/`: a table in any bytes of the wire, to our words and back.
#[cfg(fuzzing)]
pub fn round_trip(bytes: &[u8]) {
    // lapin reads nested tables by recursion; how deep is bounded by the frame, see `cli::stack`.
    let Ok((_, table)) = lapin::types::parsing::parse_field_table(&bytes[..bytes.len().min(4096)]) else {
        return;
    };
    let ours = table_in(&table);
    if let Ok(out) = table_out(&ours) {
        // Compared as text: not-a-number is not equal to itself.
        assert_eq!(format!("{:?}", table_in(&out)), format!("{ours:?}"));
    }
}

#[cfg(test)]
mod tests;

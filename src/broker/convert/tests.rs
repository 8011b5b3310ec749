use std::io::Cursor;

use lapin::types::generation::gen_field_table;
use proptest::prelude::*;

use super::*;

fn one_of_each() -> Table {
    let inner = Table::from([("deep".into(), Value::List(vec![Value::Null, Value::Table(Table::new())]))]);
    Table::from([
        ("t".into(), Value::Bool(true)),
        ("b".into(), Value::I8(i8::MIN)),
        ("B".into(), Value::U8(u8::MAX)),
        ("s".into(), Value::I16(i16::MIN)),
        ("u".into(), Value::U16(u16::MAX)),
        ("I".into(), Value::I32(i32::MIN)),
        ("i".into(), Value::U32(u32::MAX)),
        ("l".into(), Value::I64(i64::MIN)),
        ("f".into(), Value::F32(f32::INFINITY)),
        ("d".into(), Value::F64(-0.0)),
        ("D".into(), Value::Decimal { scale: 2, value: 314 }),
        ("S".into(), Value::Text(vec![0xff, 0x00])),
        ("A".into(), Value::List(vec![Value::I8(1), Value::text("two")])),
        ("T".into(), Value::Time(u64::MAX)),
        ("F".into(), Value::Table(inner)),
        ("x".into(), Value::Bytes(vec![1, 2])),
        ("V".into(), Value::Null),
    ])
}

#[test]
fn every_type_comes_back_as_it_went() {
    let table = one_of_each();
    let out = table_out(&table).unwrap();
    let tags: String = out.into_iter().map(|(_, value)| value.get_type().get_id()).collect();
    assert_eq!(tags, "ABDFISTVbdfilstux", "each name is its type's tag, in sorted order");
    assert_eq!(table_in(&out), table);
}

#[test]
fn nan_stays_nan() {
    let table = Table::from([("d".into(), Value::F64(f64::NAN)), ("f".into(), Value::F32(f32::NAN))]);
    let back = table_in(&table_out(&table).unwrap());
    assert!(matches!(back["d"], Value::F64(v) if v.is_nan()));
    assert!(matches!(back["f"], Value::F32(v) if v.is_nan()));
}

/// K60: RabbitMQ closes the connection on a short string in a table.
#[test]
fn a_short_string_comes_in_as_text_and_never_goes_out() {
    let mut table = FieldTable::default();
    table.insert("k".into(), AMQPValue::ShortString("v".into()));
    let ours = table_in(&table);
    assert_eq!(ours["k"], Value::text("v"));
    assert_eq!(table_out(&ours).unwrap().inner()["k"], AMQPValue::LongString("v".into()));
}

/// K59: 255 bytes pass, 256 are an error with a name, at any depth.
#[test]
fn an_overlong_name_or_property_is_an_error_not_a_panic() {
    let named = |bytes| Table::from([("n".repeat(bytes), Value::Null)]);
    assert!(table_out(&named(255)).is_ok());
    let nested = Table::from([("list".into(), Value::List(vec![Value::Table(named(256))]))]);
    for table in [named(256), nested] {
        let error = table_out(&table).unwrap_err();
        assert_eq!(error.to_string(), "a header's name has 256 bytes: AMQP allows 255");
        assert_eq!(error.kind(), Kind::TooLarge);
    }
    let properties = Properties { message_id: Some("m".repeat(256)), ..Properties::default() };
    let error = properties_out(&properties).unwrap_err();
    assert_eq!(error.to_string(), "message_id has 256 bytes: AMQP allows 255");
}

#[test]
fn what_is_nested_too_deep_is_an_error_not_an_abort() {
    let nested = |depth| {
        let value = (0..depth).fold(Value::Null, |inner, _| Value::List(vec![inner]));
        Table::from([("h".into(), value)])
    };
    assert_eq!(table_in(&table_out(&nested(HEADER_DEPTH_MAX)).unwrap()), nested(HEADER_DEPTH_MAX));
    let error = table_out(&nested(HEADER_DEPTH_MAX + 1)).unwrap_err();
    assert_eq!((error.kind(), error.is_permanent()), (Kind::TooLarge, true));
}

#[test]
fn every_property_comes_back_as_it_went() {
    let text = |name: &str| Some(name.to_owned());
    let properties = Properties {
        content_type: text("ct"),
        content_encoding: text("ce"),
        headers: Some(one_of_each()),
        delivery_mode: Some(2),
        priority: Some(9),
        correlation_id: text("ci"),
        reply_to: text("rt"),
        expiration: text("60000"),
        message_id: text("mi"),
        timestamp: Some(u64::MAX),
        kind: text("ty"),
        user_id: text("ui"),
        app_id: text("ai"),
        cluster_id: text("cl"),
    };
    assert_eq!(properties_in(&properties_out(&properties).unwrap()), properties);
    let none = Properties::default();
    assert_eq!(properties_in(&properties_out(&none).unwrap()), none);
}

#[test]
fn a_deliverys_body_is_moved() {
    let body = vec![7; 1000];
    let address = body.as_ptr();
    let delivery = lapin::message::Delivery::mock(5, "x".into(), "k".into(), true, body);
    let (message, tag) = message(delivery);
    assert_eq!((tag, message.exchange.as_str(), message.routing_key.as_str()), (5, "x", "k"));
    assert!(message.redelivered);
    assert_eq!(message.body.as_ptr(), address);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i8>().prop_map(Value::I8),
        any::<u8>().prop_map(Value::U8),
        any::<i16>().prop_map(Value::I16),
        any::<u16>().prop_map(Value::U16),
        any::<i32>().prop_map(Value::I32),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        any::<f32>().prop_filter("equal to itself", |v| !v.is_nan()).prop_map(Value::F32),
        any::<f64>().prop_filter("equal to itself", |v| !v.is_nan()).prop_map(Value::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, value)| Value::Decimal { scale, value }),
        any::<Vec<u8>>().prop_map(Value::Text),
        any::<Vec<u8>>().prop_map(Value::Bytes),
        any::<u64>().prop_map(Value::Time),
        Just(Value::Null),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            prop::collection::btree_map(".{0,20}", inner, 0..4).prop_map(Value::Table),
        ]
    })
}

proptest! {
    #[test]
    fn any_table_comes_back_as_it_went(table in prop::collection::btree_map(".{0,20}", any_value(), 0..5)) {
        let out = table_out(&table).unwrap();
        prop_assert_eq!(&table_in(&out), &table);
        let mut wire = vec![0; 1 << 20];
        let written = gen_field_table(&out)(Cursor::new(&mut wire[..]).into()).unwrap().into_inner().1;
        prop_assert_eq!(table_wire_bytes(&table) as u64, written);
    }
}

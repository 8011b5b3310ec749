//! A key specification is taken or refused in one line; whatever is taken finds a key in a message, or says why not.

#![no_main]

use ackonce::{
    key::KeySpec,
    message::{Message, Properties, Table, Value},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<String>, String, Vec<u8>, Vec<u8>)| {
    let (sources, name, header, body) = input;
    match KeySpec::parse(sources.iter().map(String::as_str)) {
        Ok(spec) => {
            let headers = Some(Table::from([(name.clone(), Value::Text(header))]));
            let properties = Properties { message_id: Some(name), headers, ..Properties::default() };
            let message = Message { properties, body, ..Message::default() };
            if let Ok(key) = spec.extract(&message) {
                assert!(!key.as_str().trim().is_empty(), "a blank key");
                assert_eq!(spec.extract(&message).ok(), Some(key), "the same message has the same key");
            }
        }
        Err(why) => assert!(!why.trim().is_empty() && !why.contains(char::is_control), "{why:?}"),
    }
});

//! The only place that speaks AMQP.

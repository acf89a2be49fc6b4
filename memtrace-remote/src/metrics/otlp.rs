//! Figures as metrics of OpenTelemetry: <https://opentelemetry.io/docs/specs/otlp/>.

use memtrace_analyze::Family;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value,
};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use std::collections::HashMap;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes requests of figures, and knows since when each counter counts.
pub(super) struct Encoder {
    host: String,
    began_ns: u64,
    counters: HashMap<&'static str, Counter>,
}

/// A counter as it was sent last.
struct Counter {
    began_ns: u64,
    at_ns: u64,
    value: f64,
}

impl Encoder {
    /// For figures of a host, from now on.
    pub(super) fn of(host: String, now_ns: u64) -> Self {
        Self {
            host,
            began_ns: now_ns,
            counters: HashMap::new(),
        }
    }

    /// The request that has these figures.
    pub(super) fn request(
        &mut self,
        families: &[Family],
        now_ns: u64,
    ) -> ExportMetricsServiceRequest {
        let metrics = families.iter().map(|family| self.metric(family, now_ns));
        let metrics = metrics.collect();
        let text = |name: &'static str, text: &str| attribute(&(name, text.to_owned()));
        // https://opentelemetry.io/docs/specs/semconv/resource/
        let attributes = vec![
            text("service.name", "memtrace"),
            text("service.version", VERSION),
            text("service.instance.id", &self.host),
            text("host.name", &self.host),
            text("os.type", std::env::consts::OS),
        ];
        let scope = InstrumentationScope {
            name: "memtrace".to_owned(),
            version: VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        let resource = Resource {
            attributes,
            ..Resource::default()
        };
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(resource),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        }
    }

    fn metric(&mut self, family: &Family, now_ns: u64) -> Metric {
        let described = family.metric;
        let mut points = Vec::with_capacity(family.samples.len());
        for (labels, value) in &family.samples {
            let began_ns = match described.is_counter {
                true => self.began(described.name, *value, now_ns),
                false => 0,
            };
            points.push(NumberDataPoint {
                attributes: labels.iter().map(attribute).collect(),
                start_time_unix_nano: began_ns,
                time_unix_nano: now_ns,
                value: Some(number_data_point::Value::AsDouble(*value)),
                ..NumberDataPoint::default()
            });
        }
        let data = match described.is_counter {
            true => Data::Sum(Sum {
                data_points: points,
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
                is_monotonic: true,
            }),
            false => Data::Gauge(Gauge {
                data_points: points,
            }),
        };
        Metric {
            name: described.dotted.to_owned(),
            description: described.help.to_owned(),
            unit: described.unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    /// Since when a counter counts: one that is lower than before, as that of another recorder, since
    /// it was sent last.
    fn began(&mut self, name: &'static str, value: f64, now_ns: u64) -> u64 {
        let counter = self.counters.entry(name).or_insert(Counter {
            began_ns: self.began_ns,
            at_ns: now_ns,
            value,
        });
        if value < counter.value {
            counter.began_ns = counter.at_ns;
        }
        (counter.at_ns, counter.value) = (now_ns, value);
        counter.began_ns
    }
}

fn attribute((name, text): &(&'static str, String)) -> KeyValue {
    KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(text.clone())),
        }),
        ..KeyValue::default()
    }
}

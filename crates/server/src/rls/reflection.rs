//! What tools like grpcurl ask to learn the messages. The generated types carry no description of themselves, so those
//! messages that tools need for this service are described here: all that can be asked, and of the answer all but the
//! two fields that only Envoy reads, `dynamic_metadata` and `quota`.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};
use tonic::service::Routes;
use tonic_reflection::server::{Builder, Error};

/// The reflection service in both its versions.
pub(super) fn routes() -> Option<Routes> {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_file_descriptor_set(files())
    };
    let build =
        || -> Result<Routes, Error> { Ok(Routes::new(builder().build_v1()?).add_service(builder().build_v1alpha()?)) };
    build().inspect_err(|error| tracing::error!(%error, "reflection is not available")).ok()
}

const DURATION: &str = "google/protobuf/duration.proto";
const WRAPPERS: &str = "google/protobuf/wrappers.proto";
const BASE: &str = "envoy/config/core/v3/base.proto";
const UNIT: &str = "envoy/type/v3/ratelimit_unit.proto";
const COMMON: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";
const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";

fn files() -> FileDescriptorSet {
    let duration = message("Duration", vec![one(1, "seconds", Type::Int64), one(2, "nanos", Type::Int32)]);
    let hits = message("UInt64Value", vec![one(1, "value", Type::Uint64)]);
    let header = message(
        "HeaderValue",
        vec![one(1, "key", Type::String), one(2, "value", Type::String), one(3, "raw_value", Type::Bytes)],
    );
    let units = enumeration("RateLimitUnit", &["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"]);
    FileDescriptorSet {
        file: vec![
            FileDescriptorProto { message_type: vec![duration], ..file(DURATION, "google.protobuf", &[]) },
            FileDescriptorProto { message_type: vec![hits], ..file(WRAPPERS, "google.protobuf", &[]) },
            FileDescriptorProto { message_type: vec![header], ..file(BASE, "envoy.config.core.v3", &[]) },
            FileDescriptorProto { enum_type: vec![units], ..file(UNIT, "envoy.type.v3", &[]) },
            FileDescriptorProto {
                message_type: vec![descriptor()],
                ..file(COMMON, "envoy.extensions.common.ratelimit.v3", &[WRAPPERS, UNIT])
            },
            FileDescriptorProto {
                message_type: vec![request(), response()],
                service: vec![service()],
                ..file(SERVICE, "envoy.service.ratelimit.v3", &[DURATION, BASE, COMMON])
            },
        ],
    }
}

fn descriptor() -> DescriptorProto {
    const PATH: &str = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
    let fields = vec![
        many(of_type(1, "entries", Type::Message, &format!("{PATH}.Entry"))),
        of_type(2, "limit", Type::Message, &format!("{PATH}.RateLimitOverride")),
        of_type(3, "hits_addend", Type::Message, ".google.protobuf.UInt64Value"),
        one(4, "is_negative_hits", Type::Bool),
    ];
    let unit = of_type(2, "unit", Type::Enum, ".envoy.type.v3.RateLimitUnit");
    let nested_type = vec![
        message("Entry", vec![one(1, "key", Type::String), one(2, "value", Type::String)]),
        message("RateLimitOverride", vec![one(1, "requests_per_unit", Type::Uint32), unit]),
    ];
    DescriptorProto { nested_type, ..message("RateLimitDescriptor", fields) }
}

fn request() -> DescriptorProto {
    let of_common = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
    let fields = vec![
        one(1, "domain", Type::String),
        many(of_type(2, "descriptors", Type::Message, of_common)),
        one(3, "hits_addend", Type::Uint32),
    ];
    message("RateLimitRequest", fields)
}

fn response() -> DescriptorProto {
    const PATH: &str = ".envoy.service.ratelimit.v3.RateLimitResponse";
    const HEADER: &str = ".envoy.config.core.v3.HeaderValue";
    let code = |number, name| of_type(number, name, Type::Enum, &format!("{PATH}.Code"));
    let units = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];
    let limit_fields = vec![
        one(3, "name", Type::String),
        one(1, "requests_per_unit", Type::Uint32),
        of_type(2, "unit", Type::Enum, &format!("{PATH}.RateLimit.Unit")),
    ];
    let limit = DescriptorProto { enum_type: vec![enumeration("Unit", &units)], ..message("RateLimit", limit_fields) };
    let status_fields = vec![
        code(1, "code"),
        of_type(2, "current_limit", Type::Message, &format!("{PATH}.RateLimit")),
        one(3, "limit_remaining", Type::Uint32),
        of_type(4, "duration_until_reset", Type::Message, ".google.protobuf.Duration"),
    ];
    let fields = vec![
        code(1, "overall_code"),
        many(of_type(2, "statuses", Type::Message, &format!("{PATH}.DescriptorStatus"))),
        many(of_type(3, "response_headers_to_add", Type::Message, HEADER)),
        many(of_type(4, "request_headers_to_add", Type::Message, HEADER)),
        one(5, "raw_body", Type::Bytes),
    ];
    DescriptorProto {
        nested_type: vec![limit, message("DescriptorStatus", status_fields)],
        enum_type: vec![enumeration("Code", &["UNKNOWN", "OK", "OVER_LIMIT"])],
        ..message("RateLimitResponse", fields)
    }
}

fn service() -> ServiceDescriptorProto {
    let method = MethodDescriptorProto {
        name: Some("ShouldRateLimit".to_owned()),
        input_type: Some(".envoy.service.ratelimit.v3.RateLimitRequest".to_owned()),
        output_type: Some(".envoy.service.ratelimit.v3.RateLimitResponse".to_owned()),
        ..Default::default()
    };
    ServiceDescriptorProto { name: Some("RateLimitService".to_owned()), method: vec![method], options: None }
}

fn file(name: &str, package: &str, dependencies: &[&str]) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        package: Some(package.to_owned()),
        dependency: dependencies.iter().map(|&name| name.to_owned()).collect(),
        syntax: Some("proto3".to_owned()),
        ..Default::default()
    }
}

fn message(name: &str, field: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto { name: Some(name.to_owned()), field, ..Default::default() }
}

fn enumeration(name: &str, values: &[&str]) -> EnumDescriptorProto {
    let value = |(number, name): (i32, &&str)| EnumValueDescriptorProto {
        name: Some((*name).to_owned()),
        number: Some(number),
        options: None,
    };
    let value = (0..).zip(values).map(value).collect();
    EnumDescriptorProto { name: Some(name.to_owned()), value, ..Default::default() }
}

fn one(number: i32, name: &str, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional as i32),
        r#type: Some(kind as i32),
        ..Default::default()
    }
}

fn of_type(number: i32, name: &str, kind: Type, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto { type_name: Some(type_name.to_owned()), ..one(number, name, kind) }
}

fn many(field: FieldDescriptorProto) -> FieldDescriptorProto {
    FieldDescriptorProto { label: Some(Label::Repeated as i32), ..field }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_routes() {
        assert!(routes().is_some());
    }
}

//! Keys that stand for a value in JSON where they are not the value's own fields.

/// Declares the keys that stand for a value, and how each is filled; `serde(with)` takes their
/// name. `as` in front makes them the JSON of the value's type.
#[macro_export]
macro_rules! keys {
    (as $(#[$doc:meta])* $name:ident of $value:ident: $of:ident { $($keys:tt)+ }) => {
        $crate::keys! { $(#[$doc])* $name of $value: $of { $($keys)+ } }

        impl serde::Serialize for $of {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, to)
            }
        }

        impl schemars::JsonSchema for $of {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($of).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $name::json_schema(generator)
            }
        }
    };
    ($(#[$doc:meta])* $name:ident of $value:ident: $of:ty {
        $($(#[$key_doc:meta])* $key:ident: $type:ty = $get:expr,)+
    }) => {
        $(#[$doc])*
        #[derive(serde::Serialize, schemars::JsonSchema)]
        pub struct $name {
            $($(#[$key_doc])* $key: $type,)+
        }

        impl $name {
            pub fn serialize<S: serde::Serializer>(
                $value: &$of,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&Self { $($key: $get,)+ }, to)
            }
        }
    };
}

//! The two macros that make a Worker of an agent. `#[durable_object]` wants a struct of its own without generics, so each
//! declares one and forwards every handler: the default bodies of the platform's trait panic.

/// Declares the Durable Object class of an agent, for workers with a router of their own.
///
/// ```ignore
/// use wakeful::durable::{Cors, RouteOptions, route};
/// use worker::{Context, Env, Request, Response, event};
///
/// wakeful::durable_agent!(pub struct Chat for Helper = |env| Helper::new(env));
///
/// #[event(fetch)]
/// async fn fetch(request: Request, env: Env, _: Context) -> worker::Result<Response> {
///     match route(&request, &env, &RouteOptions::new().cors(Cors::Any)).await? {
///         Some(answer) => Ok(answer),
///         None => Response::error("Not found", 404),
///     }
/// }
/// ```
///
/// The class, its binding and `class_name` in `wrangler.toml` carry the same name, so that clients find by `agent: "Chat"` what
/// the identity frame then reports. The crate needs `worker` as a direct dependency. Natively the macro expands to nothing: an
/// agent is tested without the platform.
#[macro_export]
macro_rules! durable_agent {
    ($(#[$meta:meta])* $vis:vis struct $class:ident for $agent:ty = $make:expr $(;)?) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            // What the attribute expands to names both without a path.
            use $crate::durable::worker::{self, wasm_bindgen};

            $(#[$meta])*
            #[worker::durable_object]
            $vis struct $class {
                host: ::std::panic::AssertUnwindSafe<$crate::durable::Host<$agent>>,
            }

            impl worker::DurableObject for $class {
                fn new(state: worker::State, env: worker::Env) -> Self {
                    let make: fn(&worker::Env) -> $agent = $make;
                    Self { host: ::std::panic::AssertUnwindSafe($crate::durable::Host::new(stringify!($class), state, env, make)) }
                }

                async fn fetch(&self, request: worker::Request) -> worker::Result<worker::Response> {
                    self.host.0.fetch(request).await
                }

                async fn alarm(&self) -> worker::Result<worker::Response> {
                    self.host.0.alarm().await
                }

                async fn websocket_message(
                    &self,
                    socket: worker::WebSocket,
                    message: worker::WebSocketIncomingMessage,
                ) -> worker::Result<()> {
                    self.host.0.websocket_message(socket, message).await
                }

                async fn websocket_close(
                    &self,
                    socket: worker::WebSocket,
                    code: usize,
                    reason: String,
                    clean: bool,
                ) -> worker::Result<()> {
                    self.host.0.websocket_close(socket, code, reason, clean).await
                }

                async fn websocket_error(&self, socket: worker::WebSocket, error: worker::Error) -> worker::Result<()> {
                    self.host.0.websocket_error(socket, error).await
                }
            }
        };
    };
    ($($other:tt)*) => {
        ::core::compile_error!("expected `pub struct ClassName for AgentType = |env| agent`, as in `durable_agent!(pub struct Chat for Helper = |_env| Helper)`");
    };
}

/// Declares a whole Worker: the class of [`durable_agent!`](crate::durable_agent) and a `fetch` handler that routes to it with
/// the default options. Once per crate.
///
/// ```ignore
/// wakeful::serve!(pub struct ChatAgent for Helper = |_env| Helper);
/// ```
#[macro_export]
macro_rules! serve {
    ($(#[$meta:meta])* $vis:vis struct $class:ident for $agent:ty = $make:expr $(;)?) => {
        $crate::durable_agent!($(#[$meta])* $vis struct $class for $agent = $make);

        #[cfg(target_arch = "wasm32")]
        use $crate::durable::worker as __wakeful_worker;

        #[cfg(target_arch = "wasm32")]
        #[__wakeful_worker::event(fetch)]
        async fn fetch(
            request: __wakeful_worker::Request,
            env: __wakeful_worker::Env,
            _context: __wakeful_worker::Context,
        ) -> __wakeful_worker::Result<__wakeful_worker::Response> {
            match $crate::durable::routing::route(&request, &env, &$crate::durable::routing::RouteOptions::default()).await? {
                ::core::option::Option::Some(answer) => ::core::result::Result::Ok(answer),
                ::core::option::Option::None => __wakeful_worker::Response::error("Not found", 404),
            }
        }
    };
    ($($other:tt)*) => {
        ::core::compile_error!("expected `pub struct ClassName for AgentType = |env| agent`, as in `serve!(pub struct ChatAgent for Helper = |_env| Helper)`");
    };
}

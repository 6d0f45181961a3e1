//! An agent with one tool. `serve!` makes a whole Worker of it.

use wakeful::prelude::*;

#[derive(Deserialize, JsonSchema)]
struct Place {
    /// City name
    city: String,
}

pub struct Forecaster;

impl Agent for Forecaster {
    fn model(&self, _: &Turn) -> ModelRef {
        "demo".into() // or "workers-ai/@cf/moonshotai/kimi-k2.5", "openai/…", "openai-compatible/…"
    }

    fn tools(&self, _: &Turn) -> Tools {
        Tools::new().with(Tool::server("weather", "Current weather in a city", |place: Place, _| async move {
            let sky = ["sunny", "cloudy", "rainy", "snowing"][place.city.len() % 4]; // ask a real service here
            Ok::<_, ToolError>(format!("It is {sky} in {}.", place.city))
        }))
    }
}

wakeful::serve!(pub struct ChatAgent for Forecaster = |_env| Forecaster);

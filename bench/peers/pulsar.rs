// The Rust client at a pipeline's work: all messages of a topic, looking at no more than the payload.
//
//     pulsar URL TOPIC MESSAGES
//
// Acknowledges cumulatively now and then, and prints one JSON line: CPU from the first message on by message.
use futures::TryStreamExt;
use pulsar::consumer::{ConsumerOptions, InitialPosition};
use pulsar::{Consumer, Pulsar, SubType, TokioExecutor};
use std::collections::HashMap;
use std::env::args;
use std::mem::MaybeUninit;
use std::time::Instant;

const ACK_EVERY: usize = 10_000;

fn cpu_s() -> f64 {
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    let used = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, used.as_mut_ptr()), 0);
        used.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(used.ru_utime) + seconds(used.ru_stime)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = args().skip(1).collect();
    let messages: usize = given[2].parse()?;
    let client: Pulsar<_> = Pulsar::builder(&given[0], TokioExecutor).build().await?;
    let mut consumer: Consumer<Vec<u8>, _> = client
        .consumer()
        .with_topic(&given[1])
        .with_subscription("rust")
        .with_subscription_type(SubType::Exclusive)
        .with_batch_size(10_000)
        .with_options(ConsumerOptions::default().with_initial_position(InitialPosition::Earliest))
        .build()
        .await?;
    let (mut size, mut began, mut used) = (0, Instant::now(), 0.0);
    let mut last = HashMap::new();
    for number in 1..=messages {
        let message = consumer.try_next().await?.expect("the stream has no end");
        if number == 1 {
            (began, used) = (Instant::now(), cpu_s());
        }
        size += message.payload.data.len();
        if number % ACK_EVERY == 0 || number % 1000 == 1 {
            last.insert(message.topic.clone(), message.message_id.clone());
        }
        if number % ACK_EVERY == 0 {
            for (topic, id) in last.drain() {
                consumer.cumulative_ack_with_id(&topic, id.id.clone()).await?;
            }
        }
    }
    let (took, wall) = (cpu_s() - used, began.elapsed().as_secs_f64());
    let rows = messages - 1;
    println!(
        r#"{{"rows": {rows}, "cpu_us_per_row": {}, "rows_per_s": {}, "bytes": {size}}}"#,
        took / rows as f64 * 1e6,
        (rows as f64 / wall) as u64,
    );
    Ok(())
}

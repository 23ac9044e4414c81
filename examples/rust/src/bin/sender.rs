//! A sender in Rust: `sender "host=... dbname=..." PARTNER ORDER`. It pays an order and tells the partner so, in one
//! transaction; when that does not commit, nothing has happened.

use std::env;

use postgres::{Client, NoTls};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [database, partner, order] = arguments.as_slice() else {
        return Err("usage: sender DATABASE PARTNER ORDER".into());
    };
    let order: i64 = order.parse()?;
    let mut client = Client::connect(database, NoTls)?;
    let mut transaction = client.transaction()?;
    let paid = transaction.query_opt(
        "insert into shop_order (id, status, version) values ($1, 'paid', 1)
         on conflict (id) do update set status = 'paid', version = shop_order.version + 1
                                  where shop_order.status <> 'paid'
         returning version",
        &[&order],
    )?;
    let Some(paid) = paid else {
        println!("order {order}: paid already");
        return Ok(());
    };
    let version: i64 = paid.get(0);
    // As text: the client has no type for jsonb of its own.
    let data = format!(r#"{{"order": "{order}", "total": "19.90", "currency": "EUR"}}"#);
    let event: String = transaction
        .query_one(
            "select webhook.emit('order.paid', $1::text, $2::text::jsonb, subject_type => 'order',
                                 subject_id => $3::text, subject_version => $4::bigint)",
            &[partner, &data, &order.to_string(), &version],
        )?
        .get(0);
    transaction.commit()?;
    println!("order {order}: {event}");
    Ok(())
}

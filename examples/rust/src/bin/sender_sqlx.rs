//! The same sender with sqlx: `sender_sqlx postgres://... PARTNER ORDER`. It pays an order and tells the partner so, in
//! one transaction; when that does not commit, nothing has happened.

use std::env;

use sqlx::{Connection, PgConnection};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [database, partner, order] = arguments.as_slice() else {
        return Err("usage: sender_sqlx URL PARTNER ORDER".into());
    };
    let order: i64 = order.parse()?;
    let mut connection = PgConnection::connect(database).await?;
    // Dropped without a commit, on every `?` below, it is rolled back.
    let mut transaction = connection.begin().await?;
    let paid: Option<i64> = sqlx::query_scalar(
        "insert into shop_order (id, status, version) values ($1, 'paid', 1)
         on conflict (id) do update set status = 'paid', version = shop_order.version + 1
                                  where shop_order.status <> 'paid'
         returning version",
    )
    .bind(order)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(version) = paid else {
        println!("order {order}: paid already");
        return Ok(());
    };
    // As text: numbers reach the database as they are written. With sqlx's feature `json` a Value binds as jsonb.
    let data = format!(r#"{{"order": "{order}", "total": "19.90", "currency": "EUR"}}"#);
    let event: String = sqlx::query_scalar(
        "select webhook.emit('order.paid', $1, $2::text::jsonb, subject_type => 'order', subject_id => $3,
                             subject_version => $4)",
    )
    .bind(partner)
    .bind(&data)
    .bind(order.to_string())
    .bind(version)
    .fetch_one(&mut *transaction)
    .await?;
    transaction.commit().await?;
    println!("order {order}: {event}");
    Ok(())
}

//! What saving orders may cost.

use shop::Shop;

fn shop(name: &str) -> Shop {
    let path = std::env::temp_dir().join(format!("shop-{name}-{}", std::process::id()));
    let shop = Shop::open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    shop
}

#[test]
fn orders_share_a_sync() {
    let mut shop = shop("shared");
    let counts = fathom_test::counting(|| shop.save(&["tea", "coffee", "milk"]).unwrap());
    assert_eq!(counts.fsyncs(), 1, "{counts:?}");
    assert_eq!(counts.bytes_written(), "tea\ncoffee\nmilk\n".len() as u64);
}

/// Runs beside the other test, whose calls it does not count.
#[test]
fn orders_saved_one_by_one_do_not() {
    let mut shop = shop("single");
    let counts = fathom_test::counting(|| {
        for _ in 0..5 {
            shop.save(&["tea"]).unwrap();
        }
    });
    assert_eq!(counts.fsyncs(), 5, "{counts:?}");
}

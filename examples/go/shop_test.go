package shop

import (
	"testing"

	fathom "example.org/fathom/hooks/go"
)

func open(t *testing.T) *Shop {
	shop, err := Open(t.TempDir() + "/orders")
	if err != nil {
		t.Fatal(err)
	}
	return shop
}

func TestOrdersShareASync(t *testing.T) {
	shop := open(t)
	counts := fathom.Counting(t, func() {
		if err := shop.Save("tea", "coffee", "milk"); err != nil {
			t.Fatal(err)
		}
	})
	if counts.Fsyncs() != 1 || counts.BytesWritten() != uint64(len("tea\ncoffee\nmilk\n")) {
		t.Error(counts)
	}
}

func TestOrdersSavedOneByOneDoNot(t *testing.T) {
	shop := open(t)
	counts := fathom.Counting(t, func() {
		for i := 0; i < 5; i++ {
			if err := shop.Save("tea"); err != nil {
				t.Fatal(err)
			}
		}
	})
	if counts.Fsyncs() != 5 {
		t.Error(counts)
	}
}

// Package shop appends its orders to a file.
package shop

import (
	"fmt"
	"os"
)

// Shop is one file.
type Shop struct{ file *os.File }

// Open opens or creates it.
func Open(path string) (*Shop, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &Shop{file}, err
}

// Save saves orders durably: all of them with one sync.
func (s *Shop) Save(orders ...string) error {
	for _, order := range orders {
		if _, err := fmt.Fprintln(s.file, order); err != nil {
			return err
		}
	}
	return s.file.Sync()
}

package main

import (
	"database/sql"
	"fmt"
	"os"
	"sync"

	_ "github.com/mattn/go-sqlite3"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	db, err := sql.Open("sqlite3", os.Args[1]+"?_journal_mode="+os.Args[2])
	must(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec("create table t (a integer primary key, b text)")
	must(err)
	var all sync.WaitGroup
	for g := 0; g < 4; g++ {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			for i := 0; i < 25; i++ {
				_, err := db.Exec("insert into t (b) values (?)", fmt.Sprint("x", i))
				must(err)
			}
		}(g)
	}
	all.Wait()
	rows, err := db.Query("select a from t where a <= 40")
	must(err)
	n := 0
	for rows.Next() {
		n++
	}
	rows.Close()
	tx, err := db.Begin()
	must(err)
	_, err = tx.Exec("update t set b = 'u' where a % 2 = 0")
	must(err)
	must(tx.Commit())
	fmt.Println(n, "rows")
}

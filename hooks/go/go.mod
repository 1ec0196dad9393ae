module example.org/fathom/hooks/go

go 1.21

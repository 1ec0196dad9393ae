module example.org/shop

go 1.21

require example.org/fathom/hooks/go v0.0.0

replace example.org/fathom/hooks/go => ../../hooks/go

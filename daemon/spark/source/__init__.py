"""``format("fastwire")``: the data source of Spark that reads brokers directly."""

CLOCK: object

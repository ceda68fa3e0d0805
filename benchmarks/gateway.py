"""`python benchmarks/gateway.py`: see `gateway_wave`, whose name does not hide the package."""

from gateway_wave import main

if __name__ == "__main__":
    main()

"""Who moves the letters of a run: whole files between the folder of a coordinator, a store, and sites.

Couriers know names and sizes of files. They read no letter, see no rows and hold no key with which letters are signed.
"""
